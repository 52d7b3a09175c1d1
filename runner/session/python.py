# Runs cells of Python one after the other, with one set of names. core-api writes each cell to standard input: a nonce, the directory for artifacts and the code, each
# ended by a NUL. The arguments are modules that it imports before the first cell. At the end of a cell, a mark with the nonce and the exit code goes to standard output and standard error.
def _secbox():
    import sys
    here = sys.path.pop(0)  # of the cells: a file of the project that is called json.py must not take the place of a module here
    import ast, base64, builtins, json, linecache, os, signal, traceback, types
    sys.path.insert(0, here)

    cells = os.fdopen(os.dup(0), "rb")
    marks = [os.dup(1), os.dup(2)]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}

    def restore():
        """Restores output that a cell has closed or removed. What it has put in the place of it stays."""
        for number, name in enumerate(streams):
            try:
                os.fstat(number + 1)
            except OSError:
                os.dup2(marks[number], number + 1)
            stream = getattr(sys, name, None)
            if stream is None or getattr(stream, "closed", False):
                if streams[name].closed:
                    streams[name] = open(number + 1, "w", buffering=1, encoding="utf-8", errors=streams[name].errors, closefd=False)
                setattr(sys, name, streams[name])

    def flush():
        status = 0
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                status = 1
        return status

    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    names = main.__dict__
    names["__builtins__"] = builtins
    shown = []
    large = 64 << 10  # bytes of one form of a result, beyond which it is a file
    forms = [("text/html", "_repr_html_", "html"), ("text/markdown", "_repr_markdown_", "md"), ("application/json", "_repr_json_", "json"),
             ("image/svg+xml", "_repr_svg_", "svg"), ("image/png", "_repr_png_", "png")]

    def no_json(constant):
        raise ValueError(constant + " is no JSON")

    def put(bundle, media, value, extension):
        if isinstance(value, (bytes, bytearray)):
            content = bytes(value)
        elif media == "application/json" and not isinstance(value, str):
            content = json.dumps(value, allow_nan=False).encode()
        else:
            content = str(value).encode("utf-8", "replace")
        if len(content) > large:
            name = "result-%d.%s" % (len(shown) + 1, extension)
            with open(os.path.join(os.environ["SECBOX_ARTIFACTS"], name), "wb") as f:
                f.write(content)
            bundle.setdefault("files", {})[media] = name
            if media == "text/plain":
                bundle["data"][media] = content[:1000].decode("utf-8", "replace") + "…"
        elif media == "application/json":
            bundle["data"][media] = json.loads(content, parse_constant=no_json)
        elif media.startswith("image/") and media != "image/svg+xml":
            bundle["data"][media] = base64.b64encode(content).decode()
        else:
            bundle["data"][media] = content.decode("utf-8", "replace")

    def display(*values):
        for value in values:
            bundle = {"data": {}}
            known = {}
            if not isinstance(value, type) and callable(getattr(value, "_repr_mimebundle_", None)):
                try:
                    known = value._repr_mimebundle_(include=None, exclude=None) or {}
                    known = known[0] if isinstance(known, tuple) else known
                except Exception:
                    traceback.print_exc()
            for media, method, extension in forms:
                form = getattr(value, method, None) if not isinstance(value, type) else None
                try:
                    form = known[media] if media in known else form() if callable(form) else None
                    if isinstance(form, tuple):
                        form = form[0]
                    if form is not None:
                        put(bundle, media, form, extension)
                except Exception:
                    traceback.print_exc()
            if "text/plain" not in bundle["data"]:
                put(bundle, "text/plain", known["text/plain"] if "text/plain" in known else repr(value), "txt")
            shown.append(bundle)

    def figures():
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        import io
        for number in pyplot.get_fignums():
            bundle = {"data": {}}
            for media, extension in (("image/png", "png"), ("image/svg+xml", "svg")):
                picture = io.BytesIO()
                pyplot.figure(number).savefig(picture, format=extension)
                put(bundle, media, picture.getvalue(), extension)
            put(bundle, "text/plain", "figure %d" % number, "txt")
            shown.append(bundle)
        pyplot.close("all")

    def no_input(prompt=""):
        raise RuntimeError("input() has nobody to ask here: give the code what it needs as a variable or a file")

    builtins.display, builtins.input = display, no_input
    os.environ.setdefault("MPLBACKEND", "agg")

    loops = []  # the event loop, if there was an await at the top level

    def evaluate(code):
        value = eval(code, names)
        if not code.co_flags & 0x80:  # CO_COROUTINE
            return value
        import asyncio
        if not loops:
            loops.append(asyncio.new_event_loop())
        task = loops[0].create_task(value)
        try:
            return loops[0].run_until_complete(task)
        except BaseException:
            task.cancel()
            loops[0].run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def quiet(code, last):
        """Reports whether a semicolon follows the last expression."""
        line = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")[last.end_lineno - 1]
        return ";" in line.encode()[last.end_col_offset:].decode().split("#")[0]

    def run(code, filename):
        linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)
        tree = ast.parse(code, filename)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        evaluate(compile(tree, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if isinstance(last, ast.Expr):
            value = evaluate(compile(ast.Expression(last.value), filename, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            if value is not None:
                names["_"] = value
                if not quiet(code, last):
                    display(value)
        figures()

    def read():
        text, failed = bytearray(), 0
        while True:
            try:
                byte = cells.read(1)
            except BaseException:  # of a handler or an alarm that a cell has left
                traceback.print_exc()
                failed += 1
                if failed > 100:
                    os._exit(1)
                continue
            if not byte:
                os._exit(0)
            if byte == b"\0":
                return text.decode()
            text += byte

    for module in sys.argv[1:]:
        try:
            __import__(module)
        except BaseException:
            pass  # an import of the cell's own tells why
    del sys.argv[1:]

    # An interrupt that comes when its cell has ended interrupts nothing. Cells have a handler of their own, which they may replace.
    def idle(*_):
        pass

    theirs = signal.signal(signal.SIGINT, idle)
    number, process = 0, os.getpid()
    while True:
        nonce, artifacts, code = read(), read(), read()
        number += 1
        filename = "<cell %d>" % number
        os.environ["SECBOX_ARTIFACTS"] = artifacts
        del shown[:]
        status = 0
        try:
            try:
                signal.signal(signal.SIGINT, theirs)
                run(code, filename)
            except SystemExit as e:
                status = 0 if e.code is None else e.code & 255 if isinstance(e.code, int) else 1
                if status and not isinstance(e.code, int):
                    print(e.code, file=sys.stderr)
            except BaseException as e:
                restore()
                status = 130 if isinstance(e, KeyboardInterrupt) else 1
                trace = e.__traceback__
                while trace is not None and trace.tb_frame.f_code.co_filename != filename:
                    trace = trace.tb_next
                sys.last_type, sys.last_value, sys.last_traceback, sys.last_exc = type(e), e, trace, e
                traceback.print_exception(type(e), e, trace)
            finally:
                theirs = signal.signal(signal.SIGINT, idle) or signal.default_int_handler
            if os.getpid() != process:  # a child of the cell that has not ended by itself
                os._exit(status or flush())
            if shown:
                with open(os.path.join(artifacts, "results.json"), "w") as f:
                    json.dump(shown, f)
        except BaseException:
            signal.signal(signal.SIGINT, idle)
            status = status or 1
            traceback.print_exc()
        restore()
        status = status or flush()
        for mark in marks:
            os.write(mark, ("\0%s %d\0" % (nonce, status)).encode())


_secbox()
