//! Scripts: CGI programs, and FastCGI and SCGI backends.

pub mod cgi;
pub mod fastcgi;
