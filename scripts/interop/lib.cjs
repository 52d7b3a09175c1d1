// What the programs of this folder share. They throw at what is wrong.

const { URL: server, VERBOSE } = process.env;

// request sends a request of the API and returns the answer, once it has not the status that means: not yet.
async function request(path, options, notYet) {
  for (let tries = 0; ; tries++) {
    const answer = await fetch(server + path, options);
    if (answer.status === notYet && tries < 100) {
      await answer.text();
      await new Promise((next) => setTimeout(next, 100));
      continue;
    }
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }
}

const get = (path, notYet) => request(path, {}, notYet);
const post = (path, body) => request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
const run = (exec) => post("/sandbox/execs", exec);

// end ends the program when its work has: the last line that it prints is the reason of a failure.
function end(work) {
  work.then(
    () => process.exit(0),
    (error) => {
      if (VERBOSE) console.error(error);
      console.error(String(error.message).split("\n").slice(0, 3).join(" "));
      process.exit(1);
    },
  );
}

module.exports = { URL: server, end, get, post, run };
