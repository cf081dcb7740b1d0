#!/bin/sh
# /error_git_upload_pack/: only the request for the pack fails.
case "$PATH_INFO" in
*/git-upload-pack) PATH_INFO=/ exec ./error.sh ;;
esac
exec "$GIT_EXEC_PATH/git-http-backend"
