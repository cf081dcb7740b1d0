// Node.js, after the first example of the documentation: one process, one page from memory.
// Arguments: host, port, page, and "published" for the source document's variant.
const fs = require('fs');
const http = require('http');

const [host, port, page, form] = process.argv.slice(2);
const body = fs.readFileSync(page);
const answer = form === 'published'
    ? (request, response) => {
        response.writeHead(200, { 'Content-Type': 'text/plain' });
        response.end(body);
    }
    : (request, response) => {
        response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': body.length });
        response.end(body);
    };
http.createServer(answer).listen(Number(port), host, 65535);
