package process

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// isNoRoom reports that the system cannot start another process.
func isNoRoom(err error) bool {
	return errors.Is(err, windows.ERROR_NOT_ENOUGH_MEMORY) || errors.Is(err, windows.ERROR_NO_SYSTEM_RESOURCES) ||
		errors.Is(err, windows.ERROR_COMMITMENT_LIMIT)
}

// closeOnExec does nothing: processes only inherit the handles that they are given.
func closeOnExec() {}

// killedCode is the exit code of processes that are killed with their job.
const killedCode = 137

// tree is a command with its descendants, in a job object that no process can leave.
type tree struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	job  windows.Handle
	done bool
}

// start starts the command suspended, so that it cannot start a process before it is in the job.
func start(program string, argv []string, dir string, env []string, files [3]*os.File) (_ *tree, err error) {
	t := &tree{}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err := t.makeJob(); err != nil {
		return nil, err
	}
	t.cmd = &exec.Cmd{
		Path: program, Args: argv, Dir: dir, Env: env, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true},
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	if err := t.admit(uint32(t.cmd.Process.Pid)); err != nil {
		_ = t.cmd.Process.Kill()
		_ = t.cmd.Wait()
		return nil, err
	}
	return t, nil
}

func (t *tree) makeJob() (err error) {
	if t.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return err
	}
	// When this process ends, however it does, the job's last handle closes and its processes die.
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(t.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	return err
}

// admit puts a suspended process into the job and resumes it.
func (t *tree) admit(pid uint32) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(t.job, process); err != nil {
		return err
	}
	return resume(pid)
}

// resume resumes a suspended process. os/exec closes the handle of its only thread, so that one
// must be looked up.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		windows.CloseHandle(thread)
		return err
	}
	return err
}

// kill kills the tree.
func (t *tree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		_ = windows.TerminateJobObject(t.job, killedCode)
	}
}

// signal sends Ctrl-Break for SIGINT, to the command's process group, and kills the tree for
// others: Windows has no more signals. A command that shares no console with this program gets no
// Ctrl-Break.
func (t *tree) signal(s syscall.Signal) {
	if s != syscall.SIGINT {
		t.kill()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(t.cmd.Process.Pid))
	}
}

// terminate asks the command's process group to end, by Ctrl-Break.
func (t *tree) terminate() { t.signal(syscall.SIGINT) }

// wait waits for the main process, calls itself, kills the rest of the tree, and waits until it is
// gone.
func (t *tree) wait(itself func()) *os.ProcessState {
	_ = t.cmd.Wait()
	itself()
	t.kill()
	t.awaitEmpty()
	t.mu.Lock()
	t.done = true
	t.close()
	t.mu.Unlock()
	return t.cmd.ProcessState
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, which x/sys/windows lacks.
type accounting struct {
	userTime, kernelTime, periodUserTime, periodKernelTime int64
	pageFaults, processes, activeProcesses, terminated     uint32
}

// awaitEmpty waits until the job has no process. All of them are being terminated.
func (t *tree) awaitEmpty() {
	for {
		var now accounting
		err := windows.QueryInformationJobObject(t.job, windows.JobObjectBasicAccountingInformation, uintptr(unsafe.Pointer(&now)),
			uint32(unsafe.Sizeof(now)), nil)
		if err != nil || now.activeProcesses == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (t *tree) close() {
	if t.job != 0 {
		windows.CloseHandle(t.job)
	}
}
