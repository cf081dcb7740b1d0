// An application on port 3000 of 127.0.0.1: a WebSocket that echoes, an event stream of what clients say, and uploads.

const http = require("http");
const { WebSocketServer } = require("ws");

const listeners = new Set();

const server = http.createServer((request, response) => {
  if (request.url === "/events") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write("data: hello\n\n");
    listeners.add(response);
    response.on("close", () => listeners.delete(response));
    return;
  }
  let bytes = 0;
  request.on("data", (part) => { bytes += part.length; });
  request.on("end", () => {
    for (const listener of listeners) listener.write(`data: ${request.url}\n\n`);
    const { host, "x-forwarded-proto": scheme, "x-forwarded-for": client } = request.headers;
    response.end(`${bytes} bytes for ${scheme}://${host}${request.url} from ${client}\n`);
  });
});

const sockets = new WebSocketServer({ server, path: "/socket", maxPayload: 2_000_000 });
sockets.on("connection", (socket) => {
  socket.on("message", (message, isBinary) => socket.send(message, { binary: isBinary }));
});

server.listen(3000, "127.0.0.1");
