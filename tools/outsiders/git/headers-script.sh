#!/bin/sh
# /smart_headers/: a request must have both header fields (Apache's Require expr).
if [ "$HTTP_X_MAGIC_ONE" = abra ] && [ "$HTTP_X_MAGIC_TWO" = cadabra ]; then
	exec "$GIT_EXEC_PATH/git-http-backend"
fi
printf 'Status: 403 Forbidden\nContent-Type: text/plain\n\n'
