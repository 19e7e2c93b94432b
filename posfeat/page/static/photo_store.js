// The browser keeps the last photos that were sent, so that a link still works when the server has forgotten them.

const MOST = 12;

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("posfeat", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("photos");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const result = (request) => new Promise((resolve, reject) => { request.onsuccess = () => resolve(request.result); request.onerror = () => reject(request.error); });

// Storage may be off or full: then links last as long as the server remembers.
export async function keep(reference, blob, name) {
  try {
    const photos = (await open()).transaction("photos", "readwrite").objectStore("photos");
    await result(photos.put({ blob, name, time: Date.now() }, reference));
    const [keys, values] = [await result(photos.getAllKeys()), await result(photos.getAll())];
    const old = keys.map((key, i) => [values[i].time, key]).sort((a, b) => b[0] - a[0]).slice(MOST);
    await Promise.all(old.map(([, key]) => result(photos.delete(key))));
  } catch { /* see above */ }
}

export async function find(reference) {
  try {
    return (await result((await open()).transaction("photos").objectStore("photos").get(reference))) || null;
  } catch { return null; }
}
