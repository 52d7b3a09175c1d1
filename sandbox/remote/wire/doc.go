// Package wire is the language between core-api and a runner, the program on a user's machine that serves the sandbox interface: JSON
// messages in text frames of one WebSocket that the runner dials, and two HTTP requests for what is large, which it dials too.
//
//	runner  -> core-api:  hello    result messages   output*   pong   transfer problems as error
//	core-api -> runner:   welcome  request messages  cancel    ack    ping
//
// A link begins with hello and welcome. A ping may have an id, which its pong repeats, so that it is known how long it took. A cancel and an
// ack have the id of the request they are about.
//
// Requests are those of exec, read_file, write_file, stat, read_dir, mkdir_all, remove and remove_all; each carries an id, and gets exactly
// one of exec_result, file_content, ok, file_info, dir_entries or error with that id, its result. Paths are the sandbox's ("/workspace/…").
//
// # One life of a runner, many links
//
// A runner's process makes up a session when it starts and says it in every hello. Links come and go within a session; what is in flight
// does not end with a link. The runner keeps every request it has taken until its result was acknowledged, and the ids of those for longer:
//
//   - Its hello lists what it holds (Held). core-api sends again what it is waiting for and the runner does not hold: that was never
//     taken. What the runner holds it goes on with, from the offsets that the welcome names, and delivers.
//   - What the runner holds and the welcome does not list is of no use to anybody: a command is killed, a result is sent once (Late) and
//     forgotten when it is acknowledged. So a command that core-api has lost in a restart ends too.
//   - A request whose id the runner has seen in this session is never carried out again. With the same content it is answered from what is
//     held; with another it is an error with CodeIDReused.
//   - Another session under the same name is another life: what was in flight in the former one, and changes something, has an outcome
//     that nobody knows. core-api says so at once. Reading may be asked for again.
//
// # Output
//
// What a command writes comes in output messages, each with the offset of its first byte in its stream, while the command runs; exec_result
// carries the rest. The runner keeps what was not acknowledged with the result, so it can send again from any offset. A list of a
// directory in several messages comes on another link from its beginning.
//
// # Large content
//
// A file of more than InlineBytes is not in a message. The runner learns a transfer's id, which nobody can guess, from the request
// (write_file.transfer, read_file.transfer) and dials TransferPath + id with its own token:
//
//   - reading: PUT with the content from an offset on (Content-Range: bytes N-M/SIZE). After a break it asks with HEAD how far core-api has
//     got (header OffsetHeader) and goes on from there, with the file that it still holds open. Its file_content says size and SHA-256 of
//     all of it and carries no data; core-api compares both with what it passed on.
//   - writing: GET, with Range: bytes=N- after a break, which is answered with 206 and OffsetHeader instead of Content-Range, for the size
//     is not known before its end. The body ends with the content; its length and SHA-256 follow in the trailers SizeTrailer and
//     DigestTrailer. The runner compares, puts the file in its place, and answers ok.
//
// One HTTP request of a transfer is at work at a time; a new one takes the place of one that may be stuck.
//
// # The shortest messages
//
// A runner for one machine may send the short form of these messages: a result without counts or sizes, a list without modes, more output
// than was asked for, which is cut. core-api understands it, and a runner understands requests without the fields that are optional here.
//
// # A condition
//
// A write_file with if_sha256 replaces the file only if its content has that digest; else the result is an error with CodeChanged. core-api
// sends it to a runner whose hello says CanCompare in can.
//
// # Bounds
//
// Any byte counts as heard, so that a long message on a slow line does not end the link.
//
// Neither side believes the other: a message has at most MaxMessage bytes, a hello MaxHello, ids at most MaxID, names and versions what a line of a log
// takes. A message that is not understood, or has a field that this version does not know, ends the link with StatusProtocol and one
// sentence that says why. A path that is none is understood: refusing it is the runner's answer.
//
// Bytes lie in base64 where the fields say so. Texts are UTF-8: names of files that are not come with U+FFFD in the place of what is wrong,
// and cannot be asked for.
package wire
