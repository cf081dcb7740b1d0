//! Arguments of the commands, whose errors are errors for the operator.

use crate::config::OperatorError;

/// Arguments of a command.
pub(super) type ParsedArguments = cli::ParsedArguments<OperatorError>;
