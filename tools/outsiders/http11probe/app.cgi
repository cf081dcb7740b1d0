#!/bin/sh
# The application that Http11Probe expects of a server: the response is `OK`, the body of a POST, the
# request's fields or the request's cookies.
printf 'Content-Type: text/plain\n\n'
case ${PATH_INFO:-} in
    /echo)
        [ -z "${CONTENT_TYPE:-}" ] || printf 'Content-Type: %s\n' "$CONTENT_TYPE"
        [ -z "${CONTENT_LENGTH:-}" ] || printf 'Content-Length: %s\n' "$CONTENT_LENGTH"
        env | sed -n 's/^HTTP_//p' | awk -F= '{
            name = tolower($1)
            count = split(name, words, "_")
            name = ""
            for (nth = 1; nth <= count; nth++)
                name = name (nth > 1 ? "-" : "") toupper(substr(words[nth], 1, 1)) substr(words[nth], 2)
            print name ": " substr($0, length($1) + 2)
        }' ;;
    /cookie) printf '%s\n' "${HTTP_COOKIE:-}" | tr ';' '\n' | sed 's/^ *//' ;;
    *) if [ "$REQUEST_METHOD" = POST ]; then cat; else printf OK; fi ;;
esac
