// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/c.h>
#include <rondo/communicator.h>

struct rondo_communicator {
  rondo::Communicator value;
};
struct rondo_memory {
  rondo::Memory value;
};
struct rondo_registration {
  rondo::Registration value;
};
