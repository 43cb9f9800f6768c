// SPDX-License-Identifier: Apache-2.0
//
// Decides what TSan sees of the fake. The real driver is not instrumented, so its locks order
// nothing for TSan. The functions are those of TSan's run-time library; without TSan they do
// nothing.
#pragma once

extern "C" {
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char*, int);
__attribute__((weak)) void AnnotateIgnoreSyncBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreSyncEnd(const char*, int);
}

namespace fake {

// How often this thread has begun to be quiet. Its memory is there from the start of the thread, so
// a replaced malloc() may ask for it.
inline thread_local int quiet_depth __attribute__((tls_model("initial-exec"))) = 0;

inline void begin_quiet() {
  ++quiet_depth;
  if (AnnotateIgnoreSyncBegin == nullptr) return;
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}
inline void end_quiet() {
  --quiet_depth;
  if (AnnotateIgnoreSyncBegin == nullptr) return;
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

// TSan sees nothing that this thread does.
class Quiet {
 public:
  Quiet() { begin_quiet(); }
  ~Quiet() { end_quiet(); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};
// Within one Quiet: TSan sees what this thread does.
class Seen {
 public:
  Seen() { end_quiet(); }
  ~Seen() { begin_quiet(); }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
};

}  // namespace fake
