// Go's net/http: one page from memory, for every path.
// Arguments: host, port, page, and "published" for the source document's variant with a line of text.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("net/http of", runtime.Version())
		return
	}
	if len(os.Args) < 4 {
		log.Fatal("usage: anthill-bench-nethttp HOST PORT PAGE [published]")
	}
	body, err := os.ReadFile(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	kind := "text/html"
	if len(os.Args) > 4 {
		kind = "text/plain; charset=utf-8"
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Write(body)
	})
	log.Fatal(http.ListenAndServe(net.JoinHostPort(os.Args[1], os.Args[2]), nil))
}
