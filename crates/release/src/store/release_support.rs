//! Support of releases in this build: a type without a value in builds without the feature `releases`, so that the
//! compiler leaves out the code of releases.

/// Support of releases in this build.
///
/// Without the feature `releases` the type has no value, so the compiler leaves out all code that needs a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseSupport {
    /// The build has the feature `releases`.
    #[cfg(feature = "releases")]
    Present,
}

impl ReleaseSupport {
    /// Returns the support; None in a build without the feature.
    pub fn find() -> Option<ReleaseSupport> {
        #[cfg(feature = "releases")]
        return Some(ReleaseSupport::Present);
        #[cfg(not(feature = "releases"))]
        None
    }
}
