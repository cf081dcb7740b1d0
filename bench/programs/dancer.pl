# Dancer on its own server: one process, one page from memory.
# Arguments: host, port, page, and "published" for the source document's variant, with Dancer's defaults.
use strict;
use warnings;

my ($host, $port, $page, $form);

BEGIN {
    # Dancer parses the remaining command line.
    ($host, $port, $page, $form) = splice @ARGV;
}
use Dancer;

set server => $host;
set port   => $port;
if (($form // '') ne 'published') {
    set startup_info => 0;
    set warnings     => 0;
    set logger       => 'console';
    set log          => 'error';
}
my $body = do { local $/; open my $file, '<', $page or die "$page: $!\n"; <$file> };
get qr{.*} => sub { content_type 'text/html'; $body };
dance;
