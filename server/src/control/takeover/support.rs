//! Support of the build for takeovers.

use crate::config::OperatorError;

/// Proof that the build supports takeovers. Without support, a value is impossible, and the compiler sees that code with a
/// value never runs.
#[cfg(feature = "restart")]
#[derive(Copy, Clone, Debug)]
pub(super) struct RestartSupport(());

/// Proof that the build supports takeovers: there is none.
#[cfg(not(feature = "restart"))]
#[derive(Copy, Clone, Debug)]
pub(super) enum RestartSupport {}

impl RestartSupport {
    /// Returns the support of the build.
    #[cfg(feature = "restart")]
    pub(super) fn of_build() -> Result<RestartSupport, OperatorError> {
        Ok(RestartSupport(()))
    }

    /// Returns the support of the build.
    #[cfg(not(feature = "restart"))]
    pub(super) fn of_build() -> Result<RestartSupport, OperatorError> {
        Err(
            OperatorError::new("this build can't replace a running server").help(
                "`anthill stop`, then `anthill serve`; or install a build with the feature `restart`",
            ),
        )
    }
}
