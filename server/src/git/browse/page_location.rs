//! Location of a page: the repository with the viewed branch or commit. The location builds the addresses
//! of other pages, so links lead to pages of the same branch or commit.

use crate::git::browse::render::html::style_name;
use crate::git::browse::url::ObjectId;
use wire::request_target::encode_path;

/// Location of a page.
#[derive(Clone, Debug)]
pub(crate) struct PageLocation {
    /// Path of the route, without a final slash.
    pub prefix: Vec<u8>,
    /// Requested repository below the route, without surrounding slashes; for a list, the folder, or empty.
    pub name: Vec<u8>,
    /// Requested value of `h=`.
    pub head: Option<Vec<u8>>,
    /// Requested value of `id=`.
    pub id: Option<ObjectId>,
    /// Scheme and host for clone addresses, for example `https://example.org`.
    pub origin: Vec<u8>,
    /// Description of the repository.
    pub description: Vec<u8>,
    /// True for a page of a repository, false for a list of repositories.
    pub is_repository: bool,
}

impl PageLocation {
    /// Returns the address of a page of the same branch or commit.
    pub(crate) fn url(&self, view: &str, path: &[u8], more: &[(&str, &str)]) -> String {
        let id = self.id.as_ref().map(ObjectId::digits);
        let id = id.filter(|_| more.iter().all(|(name, _)| *name != "id"));
        self.address(view, path, self.head.as_deref(), id, more)
    }

    /// Returns the address of a page of the same branch, without the commit.
    pub(crate) fn url_of_branch(&self, view: &str, path: &[u8], more: &[(&str, &str)]) -> String {
        self.address(view, path, self.head.as_deref(), None, more)
    }

    /// Returns the address of a page of another branch.
    pub(crate) fn url_at(&self, view: &str, branch: &[u8]) -> String {
        self.address(view, b"", Some(branch), None, &[])
    }

    /// Returns the address of a page without any branch or commit except in `more`.
    pub(crate) fn plain_url(&self, view: &str, path: &[u8], more: &[(&str, &str)]) -> String {
        self.address(view, path, None, None, more)
    }

    fn address(
        &self,
        view: &str,
        path: &[u8],
        head: Option<&[u8]>,
        id: Option<&str>,
        more: &[(&str, &str)],
    ) -> String {
        let mut url = self.root();
        if !view.is_empty() {
            url.extend_from_slice(view.as_bytes());
            url.push(b'/');
        }
        encode_path(path, &mut url);
        let mut query = Vec::new();
        if let Some(head) = head {
            query.extend_from_slice(b"h=");
            encode_path(head, &mut query);
        }
        for (name, value) in id.iter().map(|id| ("id", *id)).chain(more.iter().copied()) {
            if !query.is_empty() {
                query.push(b'&');
            }
            query.extend_from_slice(name.as_bytes());
            query.push(b'=');
            query.extend_from_slice(value.as_bytes());
        }
        if !query.is_empty() {
            url.push(b'?');
            // The path encoding is kept, except for characters that end or separate query parts.
            for byte in query {
                match byte {
                    b'+' => url.extend_from_slice(b"%2B"),
                    b';' => url.extend_from_slice(b"%3B"),
                    _ => url.push(byte),
                }
            }
        }
        String::from_utf8_lossy(&url).into_owned()
    }

    /// Returns the encoded path of the repository, for example `/git/tools/hammer/`.
    fn root(&self) -> Vec<u8> {
        let mut url = Vec::new();
        encode_path(&self.prefix, &mut url);
        url.push(b'/');
        if !self.name.is_empty() {
            encode_path(&self.name, &mut url);
            url.push(b'/');
        }
        url
    }

    /// Returns the address of another name below the route.
    pub(crate) fn url_of(&self, name: &[u8]) -> String {
        let of = PageLocation {
            name: name.to_vec(),
            ..self.clone()
        };
        String::from_utf8_lossy(&of.root()).into_owned()
    }

    /// Returns the address of the style sheet.
    pub(crate) fn style(&self) -> String {
        let mut url = Vec::new();
        encode_path(&self.prefix, &mut url);
        format!("{}/{}", String::from_utf8_lossy(&url), style_name())
    }

    /// Returns the address for `git clone`.
    pub(crate) fn clone_url(&self) -> Vec<u8> {
        let root = self.root();
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        [self.origin.as_slice(), root].concat()
    }

    /// Returns the short name of the repository: the last part of the name, without `.git`.
    pub(crate) fn short_name(&self) -> &[u8] {
        let last = self.name.rsplit(|byte| *byte == b'/').next();
        let last = last.unwrap_or_default();
        last.strip_suffix(b".git").unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_encoded() {
        const ID: &str = "0123456789abcdef0123456789abcdef01234567";
        let place = PageLocation {
            prefix: b"/git".to_vec(),
            name: b"to ols/ham&mer.git".to_vec(),
            head: Some(b"a/b+c&d".to_vec()),
            id: ObjectId::parse(ID.as_bytes()),
            origin: b"https://example.org".to_vec(),
            description: Vec::new(),
            is_repository: true,
        };
        let url = place.url("tree", b"x/y?z#\xff", &[]);
        assert!(url.starts_with("/git/to%20ols/ham"), "{url}");
        assert!(url.ends_with(&format!("&id={ID}")), "{url}");
        assert!(url.contains("/tree/x/y%3Fz%23%FF?h=a/b%2Bc%26d&"), "{url}");
        let url = place.url("commit", b"", &[("id", "ef012345")]);
        assert!(url.ends_with("/commit/?h=a/b%2Bc%26d&id=ef012345"), "{url}");
        assert!(place.url_of(b"").ends_with("/git/"));
        assert_eq!(place.short_name(), b"ham&mer");
    }
}
