// Package wire defines the protocol between core-api and a runner, the program on a user's machine
// that serves the sandbox interface: JSON messages in text frames of one WebSocket, and two HTTP
// requests for large content. The runner dials all of them. The package must not know how either
// side handles a message.
//
//	runner  -> core-api:  hello    result messages   output*  input_ack*  pong  transfer problems as error
//	core-api -> runner:   welcome  request messages  stdin*  signal*  cancel  ack  ping
//
// A link begins with hello and welcome. A ping may have an id, which its pong repeats to measure
// the latency. A cancel and an ack have the id of their request.
//
// Requests are exec, read_file, write_file, stat, read_dir, mkdir_all, remove and remove_all. Each
// has an id and gets exactly one result with that id: exec_result, file_content, ok, file_info,
// dir_entries or error. Paths are the sandbox's ("/workspace/…").
//
// # Sessions and links
//
// The process of a runner makes up a session id at its start and sends it in every hello. Links
// come and go within a session; requests in flight do not end with a link. The runner keeps each
// request until its result was acknowledged, and its id for longer:
//
//   - The hello lists the requests that the runner holds (Held). core-api sends its other pending
//     requests again, because the runner never got them. The runner resumes the requests that the
//     welcome lists, from the output offsets given there.
//   - Requests that the runner holds and the welcome does not list have no caller left: a command
//     is killed, a result is sent once and forgotten when it is acknowledged. So commands also end
//     when core-api loses them in a restart.
//   - A request whose id the runner has seen in this session is never run again. With the same
//     content it is answered from the held result; with other content the answer is an error with
//     CodeIDReused.
//   - Another session under the same name means that the runner was restarted: requests of the
//     former session that change something have an unknown outcome, which core-api reports at once.
//     Reads can be tried again.
//
// # Output
//
// A command's output comes in output messages while it runs, each with the offset of its first byte
// in its stream; exec_result carries the rest. The runner keeps output until the result is
// acknowledged, so it can send again from any offset. A directory list in several messages starts
// again from its beginning on another link.
//
// # Input
//
// A command with exec.input gets its standard input in stdin messages, each with the offset of its
// first byte, and signals in numbered signal messages, while it runs. core-api sends at most
// StdinWindow bytes and MaxSignals signals more than input_ack has acknowledged, and keeps the
// unacknowledged messages. After the welcome it sends them again; the runner skips what it has, and
// acknowledges again. A gap, content after the end, more than the window, or an input_ack of
// something that was not sent ends the link. Messages about a command that has ended are ignored.
// core-api sends exec.input only to a runner whose hello lists CanInput in can.
//
// # Large content
//
// A file of more than InlineBytes does not fit into a message. The request names a transfer by an
// unguessable id (write_file.transfer, read_file.transfer), and the runner dials TransferPath + id
// with its token:
//
//   - reading: PUT with the content from an offset on (Content-Range: bytes N-M/SIZE). After a
//     break, HEAD returns how many bytes core-api has (header OffsetHeader), and the runner
//     continues there from the same open file. Its file_content carries the size and SHA-256 of the
//     whole instead of data; core-api compares both with the bytes that it received.
//   - writing: GET, with Range: bytes=N- after a break, which is answered with 206 and OffsetHeader
//     instead of Content-Range, because the size is not known in advance. The length and SHA-256
//     follow the content in the trailers SizeTrailer and DigestTrailer. The runner compares,
//     renames the file into place, and answers ok.
//
// The digest is a SHA-256. With digest "gmac" in the request it is instead the SHA-256 of the
// 16-byte tags of the content's blocks of 16 KiB, the last one shorter: the tag of block i is the
// tag of AES-128-GCM with the transfer's id as the key, i in the first eight bytes of the nonce, no
// plaintext, and the block as additional data. core-api asks for it only if the hello lists CanGMAC
// in can. The key is no secret of either side: like the SHA-256, the digest detects damage on the
// way, not a lie of the sender.
//
// A transfer serves one HTTP request at a time; a new request replaces a request that may hang.
//
// # Short messages
//
// A runner may leave out optional fields: the counts or sizes of a result, the modes of a list, and
// on Windows the permissions in modes; and it may send more output than was asked for, which
// core-api cuts. A runner accepts requests without their optional fields.
//
// # Conditional writes
//
// A write_file with if_sha256 replaces the file only if its content has that digest, and one with
// if_absent makes it only if there is none; otherwise the result is an error with CodeChanged.
// core-api sends them only to a runner whose hello lists CanCompare or CanCreate in can.
//
// # Bounds and errors
//
// Any byte counts as a sign of life, so that a long message on a slow line does not end the link.
//
// Neither side trusts the other: a message has at most MaxMessage bytes, a hello MaxHello, an id
// MaxID. A malformed message, or one with an unknown field, ends the link with StatusProtocol and
// one sentence of explanation. An invalid path is not a protocol error: the runner refuses it with
// an error message.
//
// Binary fields are base64. Texts are UTF-8: invalid bytes in the names of files become U+FFFD, and
// such files cannot be requested.
package wire
