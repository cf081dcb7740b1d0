# HTTP::Server::Simple: one process, HTTP/1.0, one page from memory.
# Arguments: host, port, page, and "published" for the source document's variant with headers by CGI.pm.
package Server;
use strict;
use warnings;
use parent 'HTTP::Server::Simple::CGI';

my ($host, $port, $page, $form) = @ARGV;
my $published = ($form // '') eq 'published';
my $body = do { local $/; open my $file, '<', $page or die "$page: $!\n"; <$file> };
my $head = "Content-Type: text/html\r\nContent-Length: " . length($body) . "\r\n\r\n";

sub handle_request {
    my ($self, $cgi) = @_;
    print "HTTP/1.0 200 OK\r\n", ($published ? $cgi->header : $head), $body;
}

sub print_banner { }

package main;
my $server = Server->new($port);
$server->host($host);
$server->run;
