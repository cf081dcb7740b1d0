//! Scripts: CGI programs, and FastCGI and SCGI backends.

pub mod backend;
pub mod cgi;
mod fastcgi;
mod scgi;
