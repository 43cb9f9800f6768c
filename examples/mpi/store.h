// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include <rondo/error.h>
#include <rondo/store.h>

// A Rondo store for a program that uses MPI. It broadcasts once the value that rank 0 puts. All
// ranks of `comm` must connect, once for each MpiStore, and rank 0 of Rondo must be rank 0 of MPI.
// Make it after MPI_Init. Thread-bound: only the thread that may call MPI uses it. put() throws
// Error(rendezvous) for a value of 2,048 bytes or more, get() Error(deadline_exceeded).
class MpiStore final : public rondo::Store {
 public:
  explicit MpiStore(MPI_Comm comm) { MPI_Comm_dup(comm, &comm_); }
  MpiStore(const MpiStore&) = delete;
  MpiStore& operator=(const MpiStore&) = delete;
  ~MpiStore() override {
    if (request_ == MPI_REQUEST_NULL)
      MPI_Comm_free(&comm_);  // otherwise MPI still uses it, until MPI_Finalize
  }

  void put(std::string_view, std::string_view value) override {
    if (value.size() >= block_.size())
      throw rondo::Error(rondo::Errc::rendezvous, "MpiStore: the value is too long");
    value.copy(block_.data(), value.size());
    begin();
    MPI_Wait(&request_, MPI_STATUS_IGNORE);  // a message this small does not wait for receivers
  }

  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override {
    if (!begun_) begin();
    for (int done = 0; done == 0;) {
      MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
      if (done != 0) break;
      if (std::chrono::steady_clock::now() >= deadline)
        throw rondo::Error(rondo::Errc::deadline_exceeded,
                           "MpiStore: rank 0 has not put " + std::string(key));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // MPI has no wait with a deadline
    }
    return block_.data();
  }

 private:
  void begin() {
    begun_ = true;
    MPI_Ibcast(block_.data(), static_cast<int>(block_.size()), MPI_CHAR, 0, comm_, &request_);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool begun_ = false;
  std::array<char, 2048> block_{};
};
