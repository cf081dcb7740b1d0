#!/usr/bin/env python3
# Prints a head and "Hello World!", and exits.
print("Content-Type: text/html\r\n\r\n<html><body><h1>Hello World!</h1></body></html>")
