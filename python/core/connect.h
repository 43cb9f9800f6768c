// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "python/core/session.h"

namespace rondo::python {

// Joins the other ranks. options: those of rondo.connect() that were given. Raises.
std::shared_ptr<Session> connect(const py::dict& options);

}  // namespace rondo::python
