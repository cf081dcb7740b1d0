//! Scripts: CGI programs, and FastCGI and SCGI backends.

pub(crate) mod backend;
pub(crate) mod cgi;
mod fastcgi;
mod scgi;
