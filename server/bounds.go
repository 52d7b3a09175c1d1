package server

import (
	"secbox/api"
	"secbox/settings"
)

// bounds are the settings' bounds as the API takes them.
func bounds(all settings.Settings) api.Bounds {
	s := all.Skills
	queued := s.MaxQueuedWork
	if queued == 0 {
		queued = -1 // as 0 would be the default
	}
	return api.Bounds{
		Memory: all.HTTP.MaxMemoryBytes, MemoryPerToken: all.HTTP.MaxMemoryBytesPerToken,
		AtWork: s.MaxConcurrentWork, Queued: queued, Uploads: s.MaxUploads, UploadsPerToken: s.MaxUploadsPerToken,
		UploadBytes: s.MaxWaitingBytes, BytesPerToken: s.MaxWaitingBytesPerToken, Downloads: s.MaxDownloads, DownloadsByToken: s.MaxDownloadsPerToken,
	}
}
