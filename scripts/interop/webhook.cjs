// The library standardwebhooks against webhooks of core-api: each is verified with the secret, and a changed one is not.
//
// Environment: NODE_PATH, URL (of core-api) and WEBHOOK_PORT, to which core-api may send.

const assert = require("node:assert/strict");
const { createServer } = require("node:http");
const { Webhook } = require("standardwebhooks");
const { end, post, run } = require("./lib.cjs");

async function main() {
  const { secret } = await post("/webhooks/secret");
  const delivered = new Promise((resolve, reject) => {
    const service = createServer(async (request, response) => {
      let body = "";
      for await (const part of request.setEncoding("utf8")) body += part;
      response.writeHead(204).end();
      resolve({ body, headers: request.headers });
    });
    service.on("error", reject).listen(Number(process.env.WEBHOOK_PORT), "127.0.0.1");
  });
  const { exec_id } = await run({
    project_id: "interop", exec: { script: "exit 3" }, callback_url: `http://127.0.0.1:${process.env.WEBHOOK_PORT}/hook`,
  });
  const { body, headers } = await delivered;
  const event = new Webhook(secret).verify(body, headers);
  assert.equal(event.type, "exec.ended");
  assert.equal(event.data.exec_id, exec_id);
  assert.equal(event.data.exit_code, 3);
  assert.throws(() => new Webhook(secret).verify(body.replace("failed", "succeeded"), headers), /signature/i);
}

end(main());
