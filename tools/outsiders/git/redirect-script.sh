#!/bin/sh
# CGI script with the rewrite rules of lib-httpd/apache.conf. PATH_INFO is the name of the rule and the rest
# of the path.
path=${PATH_INFO#/}
rule=${path%%/*}
path=${path#*/}
query=${QUERY_STRING:+?$QUERY_STRING}

redirect() {
	printf 'Status: %s\nLocation: %s\nContent-Type: text/plain\n\n' "$1" "$2"
	exit
}
not_found() {
	printf 'Status: 404 Not Found\nContent-Type: text/plain\n\n'
	exit
}

moved='301 Moved Permanently'
found='302 Found'
case "$rule" in
dumb-redir) redirect "$moved" "$HTTPD_URL/dumb/$path$query" ;;
smart-redir-perm) redirect "$moved" "$HTTPD_URL/smart/$path$query" ;;
smart-redir-temp) redirect "$found" "$HTTPD_URL/smart/$path$query" ;;
smart-redir-auth) redirect "$moved" "$HTTPD_URL/auth/smart/$path$query" ;;
smart-redir-limited)
	case "$path" in
	*/info/refs) redirect "$moved" "$HTTPD_URL/smart/$path$query" ;;
	esac
	;;
ftp-redir) redirect "$found" "ftp://localhost:1000/$path$query" ;;
loop-redir)
	case "$path" in
	x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-*)
		redirect "$found" "$HTTPD_URL/${path#x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-}$query"
		;;
	esac
	redirect "$found" "$HTTPD_URL/loop-redir/x-$path$query"
	;;
redir-to) redirect "$found" "$HTTPD_URL/really-redir-to/?path=$path&qs=$QUERY_STRING" ;;
really-redir-to)
	path=${QUERY_STRING#path=}
	path=${path%%&qs=*}
	case "$path" in
	502/*)
		printf 'Status: 502 Bad Gateway\nContent-Type: text/plain\n\n'
		exit
		;;
	esac
	redirect "$found" "$HTTPD_URL/$path?${QUERY_STRING#*&qs=}"
	;;
insane-redir) redirect "$moved" "$HTTPD_URL/intern-redir/$path/foo$query" ;;
intern-redir)
	case "$path" in
	*/foo)
		PATH_INFO=/${path%/foo}
		PATH_TRANSLATED=$DOCUMENT_ROOT$PATH_INFO
		export PATH_INFO PATH_TRANSLATED
		exec "$GIT_EXEC_PATH/git-http-backend"
		;;
	esac
	;;
redir-objects)
	case "$path" in
	# A local redirect: the server answers the request itself (RFC 3875 §6.2.2).
	*/info/refs) printf 'Location: /dumb/%s%s\n\n' "$path" "$query" && exit ;;
	*/objects/*) redirect "$moved" "$HTTPD_URL/dumb/$path$query" ;;
	esac
	;;
esac
not_found
