# HTTP::Daemon: one process, one connection at a time, one page from memory.
# Arguments: host, port, page.
use strict;
use warnings;
use HTTP::Daemon;
use HTTP::Response;

my ($host, $port, $page) = @ARGV;
my $body = do { local $/; open my $file, '<', $page or die "$page: $!\n"; <$file> };
my $daemon = HTTP::Daemon->new(LocalAddr => $host, LocalPort => $port, ReuseAddr => 1, Listen => 1024)
    or die "$host:$port: $!\n";
while (my $client = $daemon->accept) {
    while ($client->get_request) {
        # A persistent connection would block all other clients.
        $client->force_last_request;
        my @head = ('Content-Type' => 'text/html', 'Content-Length' => length $body);
        $client->send_response(HTTP::Response->new(200, 'OK', \@head, $body));
    }
    $client->close;
}
