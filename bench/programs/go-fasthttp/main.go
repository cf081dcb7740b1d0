// fasthttp: one page from memory, for every path.
// Arguments: host, port, page, and "published" for the source document's variant with a line of text.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"runtime/debug"

	"github.com/valyala/fasthttp"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		version()
		return
	}
	if len(os.Args) < 4 {
		log.Fatal("usage: anthill-bench-fasthttp HOST PORT PAGE [published]")
	}
	body, err := os.ReadFile(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	kind := "text/html"
	if len(os.Args) > 4 {
		kind = "text/plain; charset=utf-8"
	}
	server := &fasthttp.Server{
		Name: "fasthttp",
		Handler: func(c *fasthttp.RequestCtx) {
			c.SetContentType(kind)
			c.Write(body)
		},
	}
	log.Fatal(server.ListenAndServe(net.JoinHostPort(os.Args[1], os.Args[2])))
}

func version() {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/valyala/fasthttp" {
				fmt.Println("fasthttp", module.Version)
			}
		}
	}
}
