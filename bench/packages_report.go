package bench

import (
	"fmt"
	"io"
)

// The targets of skill packages.
const (
	maxUploadRatio      = 2.0
	maxStatusList       = 50.0 // ms
	maxFirstRatio       = 1.5  // of first accesses to large skills and to small ones; no file being opened is the proof, this is a sign
	maxMaterialiseRatio = 1.2
	maxRead             = 2.0 // ms
)

func (p *Packaged) targets() []Target {
	if p == nil {
		return nil
	}
	ratio := func(what string, ours, theirs Summary, name string, measured, most float64) Target {
		t := Target{
			What: what, CoreAPI: fmt.Sprintf("%.1f ms", ours.P50), Against: fmt.Sprintf("%.1f ms (%s)", theirs.P50, name),
			Measured: fmt.Sprintf("%.2f×", measured), Reached: most == 0 || measured <= most,
		}
		if most > 0 {
			t.Wanted = fmt.Sprintf("≤ %.1f×", most)
		}
		return t
	}
	takes := func(what string, s Summary, most float64) Target {
		return Target{
			What: what + ", p50", CoreAPI: fmt.Sprintf("%.1f ms", s.P50), Measured: fmt.Sprintf("%.1f ms", s.P50),
			Wanted: fmt.Sprintf("≤ %.0f ms", most), Reached: s.P50 <= most,
		}
	}
	upload := fmt.Sprintf("upload of a skill of %d files", p.Files)
	first := fmt.Sprintf("first access to %d skills of %s each, beside small ones", p.FirstSkills, binarySize(p.LargeBytes))
	out := []Target{
		ratio(upload, p.Upload, p.Unzip, "unzip", p.UploadRatio, maxUploadRatio),
		ratio(upload+", which is on the disk then", p.Upload, p.UnzipSync, "unzip, sync -f", p.SyncedRatio, 0),
		takes(fmt.Sprintf("list with status of %d skills, nothing changed, no copies", p.Skills), p.ListPinned, maxStatusList),
		takes(fmt.Sprintf("list with status of %d skills, nothing changed, copies of all", p.Skills), p.ListCopies, maxStatusList),
		ratio(first, p.FirstLarge, p.FirstSmall, "small", p.FirstRatio, maxFirstRatio),
	}
	if p.FirstOpens >= 0 {
		out = append(out, Target{
			What: fmt.Sprintf("files of skills opened during %d first accesses", p.FirstSmall.N+p.FirstLarge.N), CoreAPI: fmt.Sprint(p.FirstOpens),
			Measured: fmt.Sprint(p.FirstOpens), Wanted: "0", Reached: p.FirstOpens == 0,
		})
	}
	return append(out,
		ratio(fmt.Sprintf("materialising a skill of %d files", p.Files), p.Materialise, p.Copy, "cp -a", p.MaterialiseRatio, maxMaterialiseRatio),
		takes("content of a small file of a version over HTTP", p.ReadPinned, maxRead),
		takes("content of a small file of a copy over HTTP", p.ReadCopy, maxRead))
}

func (p *Packaged) write(w io.Writer) {
	if p == nil {
		return
	}
	fmt.Fprintf(w, "\nSkill packages: a skill of %d files (archive %s), %d skills of three small files\n\n", p.Files, binarySize(p.ArchiveBytes), p.Skills)
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	p.Upload.row(w, "upload, on the disk at the answer")
	p.Unzip.row(w, "unzip")
	p.UnzipSync.row(w, "unzip, sync -f")
	p.Materialise.row(w, "materialise")
	p.Copy.row(w, "cp -a")
	p.ListPinned.row(w, "list with status, no copies")
	p.ListCopies.row(w, "list with status, copies of all")
	p.FirstSmall.row(w, fmt.Sprintf("first access to %d small skills", p.FirstSkills))
	p.FirstLarge.row(w, "first access, large files")
	p.ReadPinned.row(w, "content of a file, version")
	p.ReadCopy.row(w, "content of a file, copy")
	fmt.Fprintf(w, "by neighbouring rounds: upload %.2f of unzip, %.2f of unzip with sync; materialise %.2f of cp -a; first access, large files %.2f of small ones\n",
		p.UploadRatio, p.SyncedRatio, p.MaterialiseRatio, p.FirstRatio)
	if p.FirstOpens >= 0 {
		fmt.Fprintf(w, "files of skills opened during all first accesses: %d\n", p.FirstOpens)
	}
}
