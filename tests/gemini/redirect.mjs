// Sends what the CLI asks of Google to the stand-in. For a CLI that has a key alone, and is told of no other address.
const { fetch } = globalThis;

globalThis.fetch = (input, init) => {
  const { pathname, search } = new URL(input instanceof Request ? input.url : input);
  const url = new URL(pathname + search, process.env.ACPD_TEST_STAND_IN);
  return fetch(input instanceof Request ? new Request(url, input) : url, init);
};
