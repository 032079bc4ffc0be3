"use strict";

window.ui = SwaggerUIBundle({
  // Relative, so that a proxy may put the server behind a prefix.
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  tryItOutEnabled: true,
  defaultModelsExpandDepth: 0,
  // A badge of another host's would tell it of this server.
  validatorUrl: null,
});
