// A page that is opened from a file may not load a worker. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        frame.addEventListener("load", () => {
          const inner = frame.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          resolve(inner);
        });
      });
      const script = document.createElement("script");
      script.src = String(url);
      frame.srcdoc = script.outerHTML;
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
