# Mojolicious, for its daemon and for hypnotoad: serves one page from memory.
# Environment: MOJO_PAGE; for hypnotoad also MOJO_LISTEN_ON, MOJO_PID_FILE and MOJO_WORKERS.
use Mojolicious::Lite -signatures;

my $page = $ENV{MOJO_PAGE};
my $body = do { local $/; open my $file, '<', $page or die "$page: $!\n"; <$file> };
app->log->level('fatal');
app->secrets(['nothing is signed here']);
app->config(hypnotoad => {
    listen   => [$ENV{MOJO_LISTEN_ON}],
    pid_file => $ENV{MOJO_PID_FILE},
    workers  => $ENV{MOJO_WORKERS},
}) if $ENV{MOJO_LISTEN_ON};
get '/*anything' => { anything => '' } => sub ($c) { $c->render(data => $body, format => 'html') };
app->start;
