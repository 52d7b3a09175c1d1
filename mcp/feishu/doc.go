// Package feishu moves files between Feishu (Lark) and users' sandboxes, as an internal app of one
// tenant: it downloads the files of messages, uploads files, and sends them. Content is streamed
// and never held whole. The package must not know the tools that use it.
//
// The endpoints are described at https://open.feishu.cn/document:
// auth/v3/tenant_access_token/internal, im/v1/messages, im/v1/files, im/v1/images, and
// drive/v1/files. Paths of files are paths in the sandbox.
package feishu
