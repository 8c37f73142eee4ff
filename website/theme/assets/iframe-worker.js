// Browsers start no web workers on file: pages. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script>var postMessage = (data) => answer(data)</script><script src="${url}"></script>`;
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      document.body.appendChild(this.frame);
      this.frame.contentWindow.answer = (data) => this.deliver(this, data);
    }
    postMessage(data) {
      this.ready.then(() => this.deliver(this.frame.contentWindow, data));
    }
    deliver(target, data) {
      target.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
