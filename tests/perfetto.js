// node perfetto.js FOLDER < requests > replies: Perfetto's trace processor as its page runs it, from the files of that page.
// Both are streams of protocol buffers. The page's code believes itself in a worker, so it gets what it needs of one.
const fs = require("fs"), path = require("path"), vm = require("vm");
const folder = process.argv[2];
class Local {
  open(_method, name) { this.name = path.basename(name); }
  send() { this.response = new Uint8Array(fs.readFileSync(path.join(folder, this.name))).buffer; }
}
const scope = {
  console: { log() {}, warn: console.error, error: console.error }, location: { href: "http://localhost/" }, performance,
  setTimeout, TextDecoder, TextEncoder, URL, WorkerGlobalScope: class {}, XMLHttpRequest: Local,
};
scope.self = scope;
vm.createContext(scope);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), scope);
const bytesOf = vm.runInContext("bytes => Uint8Array.from(bytes)", scope);
const port = { postMessage(reply) { process.stdout.write(Buffer.from(reply)); } };
scope.onmessage({ data: port });
setTimeout(() => port.onmessage({ data: bytesOf(fs.readFileSync(0)) }));  // once the page's code is ready
