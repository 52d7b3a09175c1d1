package main

import (
	"secbox/api"
	"secbox/settings"
)

// skillBounds are the settings' bounds as the API takes them.
func skillBounds(s settings.Skills) api.Bounds {
	queued := s.MaxQueuedWork
	if queued == 0 {
		queued = -1 // as 0 would be the default
	}
	return api.Bounds{
		AtWork: s.MaxConcurrentWork, Queued: queued, Uploads: s.MaxUploads, UploadsPerToken: s.MaxUploadsPerToken,
		UploadBytes: s.MaxWaitingBytes, BytesPerToken: s.MaxWaitingBytesPerToken, Downloads: s.MaxDownloads, DownloadsByToken: s.MaxDownloadsPerToken,
	}
}
