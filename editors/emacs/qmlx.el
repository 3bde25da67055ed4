;;; qmlx.el --- qmlx-lsp in Emacs, through Eglot  -*- lexical-binding: t -*-

;; Put this file where Emacs finds it, or paste it into init.el. Emacs 28 with Eglot 1.9, or any newer.
;; Eglot talks to one server per buffer: where another one is wanted too, put a multiplexer between them, or use
;; the commands below in the modes that are left to qmlx.

;;; Code:

(require 'eglot)

(defvar qmlx-modes '(python-mode python-ts-mode) "Modes in which `eglot' starts qmlx-lsp.")

(defvar qmlx-status "" "How it is, and what the last turn cost: for `mode-line-format'.")

(add-to-list 'eglot-server-programs (cons qmlx-modes '("qmlx-lsp" "--stdio")))

(defun qmlx--here ()
  "The document, and the selection or the place of the cursor in it."
  (let ((from (if (use-region-p) (region-beginning) (point))) (to (if (use-region-p) (region-end) (point))))
    (list :textDocument (eglot--TextDocumentIdentifier)
          :range (list :start (eglot--pos-to-lsp-position from) :end (eglot--pos-to-lsp-position to)))))

(defun qmlx--write (text)
  "Append TEXT to the buffer of answers."
  (with-current-buffer (get-buffer-create "*qmlx*")
    (let ((following (= (point) (point-max))))
      (save-excursion (goto-char (point-max)) (insert text))
      (when following (goto-char (point-max))))))

(cl-defmethod eglot-handle-notification (_server (_method (eql qmlx/stream)) &key delta &allow-other-keys)
  "An answer grows."
  (qmlx--write delta))

(cl-defmethod eglot-handle-notification (_server (_method (eql qmlx/didChangeStatus)) &key message &allow-other-keys)
  "What the mode line may show."
  (setq qmlx-status message)
  (force-mode-line-update t))

(defun qmlx-ask (question)
  "Ask QUESTION about the selection or this place; the answer grows in *qmlx*."
  (interactive "sAsk qmlx: ")
  (qmlx--write (format "\n# %s\n\n" question))
  (display-buffer "*qmlx*")
  (jsonrpc-async-request
   (eglot--current-server-or-lose) :qmlx/ask (append (list :text question) (qmlx--here))
   :success-fn (lambda (_answer) (qmlx--write "\n"))
   :error-fn (lambda (failed) (message "qmlx: %s" (plist-get failed :message)))
   :timeout 86400))

(defun qmlx-rewrite (wish)
  "Change the selection, or the function at this place, as WISH says."
  (interactive "sRewrite so that: ")
  (qmlx--command "qmlx.rewrite" (append (list :text wish) (qmlx--here))))

(defun qmlx-cancel ()
  "Stop what is running; what was said is kept."
  (interactive)
  (qmlx--command "qmlx.cancel"))

(defun qmlx-new-conversation ()
  "Begin anew: the model sees nothing of what was said before."
  (interactive)
  (qmlx--command "qmlx.newConversation"))

(defun qmlx--command (name &rest arguments)
  "Have the server execute NAME with ARGUMENTS."
  (jsonrpc-request (eglot--current-server-or-lose) :workspace/executeCommand
                   (list :command name :arguments (vconcat arguments))))

(provide 'qmlx)
;;; qmlx.el ends here
