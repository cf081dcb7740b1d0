# Starts anthill in place of Apache for git's tests. All functions that do not concern the server come from
# git's original lib-httpd.sh, which lies in the same folder under another name. The routes have the order and
# the names of lib-httpd/apache.conf.
#
# ANTHILL_FOR_GIT is the folder with the binary (anthill) and with scripts/.

if test -n "$LIB_HTTPD_DAV"
then
	skip_all='skipping test, anthill does not speak WebDAV'
	test_done
fi

. "$TEST_DIRECTORY"/lib-httpd-apache.sh

# Maps the URLs below /$1/ to the script $3 in the script folder /run$2/.
route () {
	cat <<-TOML
	[[site.route]]
	path = "/$1/"
	rewrite = "/run$2/$3/"
	TOML
}

# Maps the single URL /$1 to the script $2.
address () {
	cat <<-TOML
	[[site.route]]
	path = "/$1"
	rewrite = "/run/$2"
	TOML
}

# Adds a script folder as a route: /run$1/NAME runs the script NAME. $2 holds further variables of the
# scripts.
scripts () {
	cat <<-TOML
	[[site.route]]
	path = "/run$1/"
	cgi = "."
	env = { $passed GIT_EXEC_PATH = "$GIT_EXEC_PATH", HTTPD_URL = "$HTTPD_URL"$2 }
	TOML
}

# The variables of Apache's PassEnv directives.
pass_environment () {
	for name in PATH GIT_VALGRIND GIT_VALGRIND_OPTIONS GNUPGHOME ASAN_OPTIONS LSAN_OPTIONS GIT_TRACE \
		GIT_CONFIG_NOSYSTEM GIT_TEST_SIDEBAND_ALL LANG LC_ALL
	do
		eval "value=\${$name-}"
		test -z "$value" || printf '%s = "%s", ' "$name" "$value"
	done
}

write_configuration () {
	passed=$(pass_environment)
	if test "$HTTPD_PROTO" = https
	then
		listen="https = [\"127.0.0.1:$LIB_HTTPD_PORT\"]
http = \"off\""
		certificate='certificate = "httpd.pem"'
	else
		listen="http = [\"127.0.0.1:$LIB_HTTPD_PORT\"]
https = \"off\""
		certificate='http = "serve"'
	fi
	cat <<-TOML
	[server]
	$listen
	http3 = false
	workers = 2
	state = "state"

	[log]
	access = "requests.log"
	errors = "error.log"
	format = "json"

	[[site]]
	root = "www"
	$certificate
	headers = [{ files = "/smart_cookies/**", set = { "Set-Cookie" = "name=value" } }]

	[[site.route]]
	path = "/auth/"
	users = "passwd"

	[[site.route]]
	path = "/dumb/"
	rewrite = "/"

	TOML
	all=', GIT_HTTP_EXPORT_ALL = ""'
	scripts "" "$all"
	scripts -noexport ""
	scripts -env "$all, GIT_COMMITTER_NAME = \"Custom User\", GIT_COMMITTER_EMAIL = \"custom@example.com\""
	scripts -namespace "$all, GIT_NAMESPACE = \"ns\""
	scripts -v0 "$all, GIT_PROTOCOL = \"\""

	route smart "" git-script.sh
	route auth/smart "" git-script.sh
	route smart_noexport -noexport git-script.sh
	route smart_custom_env -env git-script.sh
	route smart_namespace -namespace git-script.sh
	route smart_cookies "" git-script.sh
	route smart_v0 -v0 git-script.sh
	# Scripts check conditions on the end of a path, on a query or on a header field.
	route smart_headers "" headers-script.sh
	route auth-push/smart "" auth-script.sh
	route auth-fetch/smart "" auth-script.sh
	route half-auth-complete/smart "" auth-script.sh
	route error_git_upload_pack/smart "" error-upload-pack-script.sh
	route one_time_perl "" apply-one-time-perl.sh

	address smart/incomplete_length/git-upload-pack incomplete-length-upload-pack-v2-http.sh
	address smart/incomplete_body/git-upload-pack incomplete-body-upload-pack-v2-http.sh
	address smart/no_report/git-receive-pack error-no-report.sh
	route broken_smart "" broken-smart-http.sh
	route error_smart "" error-smart-http.sh
	route error "" error.sh

	# Scripts make the 301 and 302 redirects, because the targets depend on more than a prefix.
	for name in dumb-redir smart-redir-perm smart-redir-temp smart-redir-auth smart-redir-limited \
		ftp-redir loop-redir redir-to really-redir-to insane-redir intern-redir redir-objects
	do
		route "$name" "" "redirect-script.sh/$name"
	done
}

prepare_httpd () {
	mkdir -p "$HTTPD_DOCUMENT_ROOT_PATH"
	for name in incomplete-length-upload-pack-v2-http.sh incomplete-body-upload-pack-v2-http.sh \
		error-no-report.sh broken-smart-http.sh error-smart-http.sh error.sh apply-one-time-perl.sh
	do
		install_script "$name"
	done
	cp "$ANTHILL_FOR_GIT"/scripts/*-script.sh "$HTTPD_ROOT_PATH"
	# The passwd file of the tests has DES hashes of crypt(3), and anthill refuses DES hashes.
	printf 'user@host:%s\n' "$(openssl passwd -apr1 pass@host)" >"$HTTPD_ROOT_PATH/passwd"

	if test -n "$LIB_HTTPD_SSL"
	then
		HTTPD_PROTO=https
		RANDFILE_PATH="$HTTPD_ROOT_PATH"/.rnd openssl req \
			-config "$TEST_PATH/ssl.cnf" \
			-new -x509 -nodes \
			-out "$HTTPD_ROOT_PATH/httpd.pem" \
			-keyout "$HTTPD_ROOT_PATH/httpd.key" &&
		cat "$HTTPD_ROOT_PATH/httpd.key" >>"$HTTPD_ROOT_PATH/httpd.pem"
		GIT_SSL_NO_VERIFY=t
		export GIT_SSL_NO_VERIFY
	else
		HTTPD_PROTO=http
	fi
	export HTTPD_ROOT_PATH
	HTTPD_DEST=127.0.0.1:$LIB_HTTPD_PORT
	HTTPD_URL=$HTTPD_PROTO://$HTTPD_DEST
	HTTPD_URL_USER=$HTTPD_PROTO://user%40host@$HTTPD_DEST
	HTTPD_URL_USER_PASS=$HTTPD_PROTO://user%40host:pass%40host@$HTTPD_DEST
	write_configuration >"$HTTPD_ROOT_PATH/anthill.toml"
}

# anthill offers HTTP/2 on TLS connections.
enable_http2 () {
	test_set_prereq HTTP2
}

start_httpd () {
	prepare_httpd >&3 2>&4

	test_atexit stop_httpd

	"$ANTHILL_FOR_GIT/anthill" serve "$HTTPD_ROOT_PATH/anthill.toml" \
		>"$HTTPD_ROOT_PATH/out.log" 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- &
	HTTPD_PID=$!
	echo $HTTPD_PID >"$HTTPD_ROOT_PATH/httpd.pid"
	tries=0
	until curl -s -k -A probe -o /dev/null "$HTTPD_URL/"
	do
		tries=$((tries + 1))
		if test $tries -gt 300 || ! kill -0 $HTTPD_PID
		then
			cat "$HTTPD_ROOT_PATH"/out.log "$HTTPD_ROOT_PATH"/error.log >&4 2>/dev/null
			test_skip_or_die GIT_TEST_HTTPD "web server setup failed"
		fi
		sleep 0.1
	done
	>"$HTTPD_ROOT_PATH/access.log"
}

stop_httpd () {
	kill $HTTPD_PID && wait $HTTPD_PID
	return 0
}

# Prints the log lines in the form that the tests make of Apache's format "common". anthill writes lines to
# the log once a second. The tests truncate access.log before they count, so lines count by their own time
# since the truncation. One subtest of t5550 greps access.log for forbidden lines and finds the file empty.
strip_access_log () {
	sleep 2
	perl -MJSON::PP -MTime::HiRes=stat -MTime::Local=timegm -ne '
		BEGIN { $since = (stat "$ENV{HTTPD_ROOT_PATH}/access.log")[9] }
		$line = decode_json($_);
		next if ($line->{agent} // "") eq "probe";
		my ($y, $m, $d, $H, $M, $S) = $line->{time} =~ /^(\d+)-(\d+)-(\d+)T(\d+):(\d+):([\d.]+)Z$/;
		next if timegm(int $S, $M, $H, $d, $m - 1, $y) + $S - int $S < $since;
		$line->{request} =~ s/^GET /GET  /;
		print "$line->{request} $line->{status}", $line->{bytes} ? "\n" : " -\n"
	' "$HTTPD_ROOT_PATH/requests.log"
}
