// Reads a JSON list of Kubernetes objects of KEDA and the Prometheus operator, and prints what is
// wrong with each, as a JSON list of texts; an empty text is a valid object.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const packages = {
  "keda.sh": "keda",
  "monitoring.coreos.com": "prometheus-operator",
};
const models = `${process.argv[2]}/@kubernetes-models`;

async function complaint(object) {
  const group = object.apiVersion.split("/")[0];
  const file = `${models}/${packages[group]}/${object.apiVersion}/${object.kind}.js`;
  const kinds = await import(pathToFileURL(file));
  try {
    new (kinds[object.kind] ?? kinds.default[object.kind])(object).validate();
    return "";
  } catch (error) {
    return String(error.message);
  }
}

const objects = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await Promise.all(objects.map(complaint))));
