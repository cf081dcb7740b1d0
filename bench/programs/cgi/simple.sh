#!/bin/sh
printf 'Content-Type: text/html\r\n\r\n<html><body><h1>Hello World!</h1></body></html>\n'
