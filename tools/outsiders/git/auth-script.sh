#!/bin/sh
# CGI script for URLs that need a login only for pushes, only for fetches, or for both requests of a push. The
# script decides because routes of anthill match only prefixes.
case "$REQUEST_URI" in
/auth-push/*/git-receive-pack | /auth-fetch/*/git-upload-pack) needs_login=yes ;;
/half-auth-complete/*/git-receive-pack | /half-auth-complete/*service=git-receive-pack*) needs_login=yes ;;
*) needs_login= ;;
esac
login="Basic $(printf 'user@host:pass@host' | base64)"
if [ "$HTTP_AUTHORIZATION" = "$login" ]; then
	export REMOTE_USER=user@host AUTH_TYPE=Basic
elif [ -n "$needs_login" ]; then
	printf 'Status: 401 Unauthorized\nWWW-Authenticate: Basic realm="git-auth"\n'
	printf 'Content-Type: text/plain\n\nno login\n'
	exit
fi
exec "$GIT_EXEC_PATH/git-http-backend"
