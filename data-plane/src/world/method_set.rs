//! Set of request methods, for the keys `methods` and `guard_methods` of a route.

use wire::request_head::Method;

/// Set of request methods. A set with GET contains HEAD too, which asks for the same page without its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MethodSet(Box<[Method]>);

impl MethodSet {
    /// Makes a set of the listed methods.
    pub fn new(listed: impl IntoIterator<Item = Method>) -> MethodSet {
        let mut methods: Vec<Method> = Vec::new();
        for method in listed {
            let head = (method == Method::Get).then_some(Method::Head);
            for method in [method].into_iter().chain(head) {
                if !methods.contains(&method) {
                    methods.push(method);
                }
            }
        }
        MethodSet(methods.into())
    }

    /// Returns true if the set contains the method.
    pub fn contains(&self, method: Method) -> bool {
        self.0.contains(&method)
    }

    /// Returns the names of the methods, with commas.
    pub fn names(&self) -> String {
        let names = self.0.iter().map(|method| method.name());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the field line Allow with the methods of the set (RFC 9110 §10.2.1).
    pub(crate) fn allow_line(&self) -> Vec<u8> {
        format!("Allow: {}\r\n", self.names()).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_brings_head() {
        let set = MethodSet::new([Method::Post, Method::Get, Method::Head, Method::Post]);
        assert_eq!(set.allow_line(), b"Allow: POST, GET, HEAD\r\n");
        assert!(set.contains(Method::Head) && !set.contains(Method::Options));
        assert!(!MethodSet::new([Method::Head]).contains(Method::Get));
    }
}
