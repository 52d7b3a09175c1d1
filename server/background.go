package server

import (
	"context"
	"time"

	"secbox/engine"
)

const (
	skillsInterval  = 2 * time.Second  // between two scans of the operator's skills
	volumesInterval = time.Hour        // between two searches for volumes of an older sandbox-init
	imagesInterval  = 10 * time.Minute // between two sweeps of own images
	sweepInterval   = 5 * time.Second  // between two sweeps while leftover containers are expected
	sweepIdle       = 12               // intervals between two sweeps otherwise: an engine that failed may list a container late
)

// startBackground starts the work beside requests. shutdown ends it and waits for it.
func (s *Server) startBackground(context.Context) error {
	ctx, stop := context.WithCancel(s.acting(context.Background()))
	s.stop = stop
	s.makeDispatcher()
	taking, stopJobs := context.WithCancel(ctx)
	s.stopJobs = stopJobs
	collected := newCollectedVersions(s.registry)
	for _, work := range []func(){
		func() { s.audit.Run(ctx) },
		func() { s.member.Run(ctx) },
		func() { s.dispatcher.Run(taking) },
		func() {
			if carrier := s.db.Carrier(); carrier != nil {
				carrier.Carry(taking, s.dispatcher.Answer, s.log)
			}
		},
		func() { s.deliverWebhooks(ctx) },
		func() { s.activity.Run(ctx) },
		func() { s.recorder().Run(ctx) },
		func() { s.db.Limits().Run(ctx, s.db.AdminEvents(), s.log) },
		func() { s.runTransparencyLog(ctx) },
		func() { s.retention.Run(ctx) },
		func() { s.deps.skills.Watch(ctx, skillsInterval) },
		func() { s.watchImages(ctx) },
		func() { s.removeOldVolumes(ctx) },
		func() { s.deps.Own.Watch(ctx, s.log) },
		func() { s.sweepImages(ctx) },
		func() { s.sweepContainers(ctx) },
		func() { watchIdle(ctx, s.library, idleAfter(s.settings), s.log) },
		func() { collectVersions(ctx, s.library, collected, s.log) },
		func() { s.sweepInputs(ctx) },
		func() { collectPublished(ctx, s.published, s.log) },
	} {
		s.background.Go(work)
	}
	return nil
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// watchImages drops waiting containers of images that were replaced. Pods are never of another
// image than their spec's.
func (s *Server) watchImages(ctx context.Context) {
	if s.deps.Images == nil {
		return
	}
	s.deps.Images.Watch(ctx, engine.WatchConfig{
		Log:     s.log,
		Changed: func(before, _ engine.Image) { s.engine.DropImage(before.ID) },
	})
}

func (s *Server) removeOldVolumes(ctx context.Context) {
	for s.deps.Images != nil {
		if err := s.deps.Images.RemoveOldVolumes(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot remove volumes of an older sandbox-init; trying again", "error", err)
		}
		if !wait(ctx, volumesInterval) {
			return
		}
	}
}

// sweepImages removes what is left of own images: of commands that were killed, and images that
// containers used when they were removed.
func (s *Server) sweepImages(ctx context.Context) {
	for s.images != nil {
		s.images.Sweep(ctx)
		if !wait(ctx, imagesInterval) {
			return
		}
	}
}

func (s *Server) sweepContainers(ctx context.Context) {
	for n := 1; wait(ctx, sweepInterval); n++ {
		if s.cold.NeedsSweep() || n%sweepIdle == 0 {
			s.sweep(ctx)
		}
	}
}

// sweep removes containers without an owner: containers that an earlier process of this node left,
// or an engine that failed.
func (s *Server) sweep(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	removed, err := s.cold.Sweep(limited)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot look for leftover containers; trying again", "error", err)
	}
	if removed > 0 {
		s.log.Warn("leftover containers of this node were removed", "containers", removed)
	}
}
