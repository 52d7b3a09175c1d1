// @sigstore/verify against what core-api signs: the attestation of an exec, the checkpoint, and the place of each event of the exec's proof in the log.
//
// Environment: NODE_PATH, URL (of core-api) and LOG_KEY (what `core-api audit key` prints).

const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity } = require("@sigstore/verify");
const { verifyCheckpoint } = require("@sigstore/verify/dist/tlog/checkpoint.js"); // the verifier itself takes entries of Rekor only
const { verifyMerkleInclusion } = require("@sigstore/verify/dist/tlog/merkle.js");
const { end, get, run, URL: server } = require("./lib.cjs");

// logOf returns the log's key as the package takes it.
function logOf(text) {
  const [, name, hash, key] = text.trim().match(/^([^+]+)\+([0-9a-f]{8})\+(.+)$/);
  const raw = Buffer.from(key, "base64").subarray(1); // after the kind of key
  const publicKey = crypto.createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: raw.toString("base64url") }, format: "jwk" });
  return { baseURL: name, logID: Buffer.from(hash, "hex"), publicKey };
}

const sha256 = (...parts) => crypto.createHash("sha256").update(Buffer.concat(parts)).digest();

async function main() {
  const log = logOf(process.env.LOG_KEY);
  const { exec_id } = await run({ project_id: "interop", exec: { script: "echo proven > /workspace/artifacts/a.txt" } });
  const attestation = await get(`/sandbox/execs/${exec_id}/attestation`, 409);
  const bundle = (envelope) => bundleFromJSON({
    mediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
    verificationMaterial: { publicKey: { hint: log.baseURL }, tlogEntries: [] },
    dsseEnvelope: envelope,
  });
  const trusted = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [], publicKey: () => log };
  const verifier = new Verifier(trusted, { tlogThreshold: 0, timestampThreshold: 0, ctlogThreshold: 0 });
  verifier.verify(toSignedEntity(bundle(attestation)));
  const payload = Buffer.from(attestation.payload, "base64").toString().replace('"exit_code":0', '"exit_code":1');
  assert.throws(() => verifier.verify(toSignedEntity(bundle({ ...attestation, payload: Buffer.from(payload).toString("base64") }))), /signature/);

  const proof = await get(`/sandbox/execs/${exec_id}/proof`, 409);
  assert.equal(proof.events.length, 3);
  for (const { event, salt, tlog_proof } of proof.events) {
    const [head, checkpoint] = tlog_proof.split(/\n\n([^]*)/);
    const [, index, ...hashes] = head.split("\n");
    const inclusionProof = {
      checkpoint: { envelope: checkpoint }, logIndex: index.replace("index ", ""), hashes: hashes.map((hash) => Buffer.from(hash, "base64")),
    };
    const signed = verifyCheckpoint({ inclusionProof }, [log]);
    const place = (text) => verifyMerkleInclusion({ inclusionProof, canonicalizedBody: sha256(Buffer.from(salt, "base64"), Buffer.from(text)) }, signed);
    place(event);
    assert.throws(() => place(event.replace(exec_id, "another")), /root hash/);
  }
}

end(main());
