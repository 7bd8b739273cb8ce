// What is thrown comes back to Python as a message: beyond extern "C", or out of a thread, it would
// end the process.
#pragma once

#include <exception>
#include <mutex>
#include <new>
#include <string>

namespace ea {

// Does the work; null, or what went wrong, valid until the thread's next call.
template <typename Work>
const char* message_of(Work work) noexcept {
  static thread_local std::string message;
  try {
    work();
    return nullptr;
  } catch (const std::bad_alloc&) {
    return "not enough memory";
  } catch (const std::exception& error) {
    try {
      return (message = error.what()).c_str();
    } catch (...) {
    }
  } catch (...) {
  }
  return "unknown error";
}

// The first exception of several threads, thrown again when all have ended.
class FirstError {
 public:
  template <typename Work>
  void keep(Work work) noexcept {
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> alone(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace ea
