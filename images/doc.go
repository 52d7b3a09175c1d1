// Package images is the room of container images: the sandbox image that this project builds, and
// own images, which an operator makes of a file or brings along, and which execs may then use
// without a restart. The package itself has only tests, of the images' properties and of
// docker-compose.yml. The packages, in reading order:
//
//   - catalog: the table of own images, and how their names become images of the engine
//   - recipe: the file of an image, and the Dockerfile and build context that it becomes
//   - bom: what is installed in an image, as a bill of materials
//   - builder: builds, checks, allows, exports, imports and removes images
//
// The room must not know requests, execs or their rows. Nothing here runs for a job: images come
// only by an operator's command.
package images
