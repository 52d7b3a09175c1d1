package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// pack writes an archive of a directory, with the directory's name before the names of its files.
func (r *release) pack(dir, name string, write func(w io.Writer, dir string, at time.Time) error) error {
	f, err := os.OpenFile(filepath.Join(r.out, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err := write(f, dir, r.time); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// writeTar writes a compressed tar archive. Its bytes follow from the names and contents of the
// files and from the time: not from owners, modes and times on this machine.
func writeTar(w io.Writer, dir string, at time.Time) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	err := eachFile(dir, func(name string, mode fs.FileMode, content []byte) error {
		header := &tar.Header{Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packed.Close()
}

// writeZip is writeTar for the archives of Windows.
func writeZip(w io.Writer, dir string, at time.Time) error {
	archive := zip.NewWriter(w)
	err := eachFile(dir, func(name string, mode fs.FileMode, content []byte) error {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
		header.SetMode(mode)
		f, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

// eachFile calls do with each file below a directory, in the order of names. Programs and scripts
// get the mode 0755.
func eachFile(dir string, do func(name string, mode fs.FileMode, content []byte) error) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if path.Dir(name) == "bin" || path.Ext(name) == ".sh" {
			mode = 0o755
		}
		return do(path.Join(filepath.Base(dir), name), mode, content)
	})
}

// copyTree copies a file, or a directory with all files in it.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rest, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		return copyFile(file, filepath.Join(to, rest))
	})
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
