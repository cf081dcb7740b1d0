#!/bin/sh
# git http-backend, as Apache's ScriptAlias runs it.
exec "$GIT_EXEC_PATH/git-http-backend"
