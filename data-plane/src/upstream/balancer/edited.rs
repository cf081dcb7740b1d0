//! A value of the configuration that the operator may change at runtime. Pure.

/// A configured value, and the operator's change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Edited<T> {
    configured: T,
    edited: Option<T>,
}

impl<T: PartialEq> Edited<T> {
    /// Creates an unchanged value.
    pub(super) fn new(configured: T) -> Edited<T> {
        Edited {
            configured,
            edited: None,
        }
    }

    /// Returns the value in force.
    pub(super) fn current(&self) -> &T {
        self.edited.as_ref().unwrap_or(&self.configured)
    }

    /// Changes the value at runtime. A change to the configured value ends the change.
    pub(super) fn edit(&mut self, value: T) {
        self.edited = (value != self.configured).then_some(value);
    }

    /// Sets the configured value. The operator's change stays in force over reloads, until the
    /// configuration itself changes the value.
    pub(super) fn configure(&mut self, configured: T) {
        if configured != self.configured {
            *self = Edited::new(configured);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_stays_until_the_configuration_changes() {
        let mut value = Edited::new(1);
        value.edit(5);
        value.configure(1);
        assert_eq!(*value.current(), 5);
        value.configure(2);
        assert_eq!(*value.current(), 2);
        value.configure(1);
        assert_eq!(*value.current(), 1);
    }

    #[test]
    fn a_change_to_the_configured_value_is_no_change() {
        let mut value = Edited::new(1);
        value.edit(5);
        value.edit(1);
        assert_eq!(value, Edited::new(1));
    }
}
