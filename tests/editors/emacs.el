;;; emacs.el --- drives Emacs for test_emacs.py  -*- lexical-binding: t -*-

;; Writes one JSON object per line to the file $OUT: what happened, as Emacs sees it.

;;; Code:

(require 'package)
(setq package-user-dir (expand-file-name "elpa" (getenv "HOME")))
(package-initialize)
(setq make-backup-files nil create-lockfiles nil auto-save-default nil)
(load (getenv "QMLX_EL") nil t)
(setq eglot-sync-connect 20 eglot-autoshutdown t eglot-confirm-server-initiated-edits nil)

(defun out (event &rest values)
  "Write EVENT with VALUES."
  (let ((json-encoding-pretty-print nil))
    (write-region (concat (json-encode (append (list :event event) values)) "\n") nil (getenv "OUT") t 'silent)))

(defun until (true)
  "Let Emacs work until TRUE returns something, 20 seconds at most."
  (let ((ends (+ (float-time) 20)) found)
    (while (not (or (setq found (funcall true)) (> (float-time) ends)))
      (accept-process-output nil 0.02))
    (unless found (error "Waited in vain"))
    found))

(defun answers () "The text of the buffer of answers."
  (if (get-buffer "*qmlx*") (with-current-buffer "*qmlx*" (buffer-string)) ""))

(condition-case failed
    (progn
      (find-file "parser.py")
      (python-mode)
      (apply #'eglot--connect (eglot--guess-contact))
      (let ((server (eglot-current-server)))
        (out "connected" :encoding (plist-get (eglot--capabilities server) :positionEncoding))
        (goto-char (point-min))
        (search-forward "def total")
        (qmlx-ask "What is this?")
        (until (lambda () (string-match-p "adds" (answers))))
        (out "growing" :text (answers))
        (until (lambda () (string-match-p "The end\\.\n" (answers))))
        (until (lambda () (string-match-p "tokens read" qmlx-status)))
        (out "answered" :text (answers) :status qmlx-status)
        (out "actions"
             :titles (vconcat (mapcar (lambda (action) (plist-get action :title))
                                      (jsonrpc-request server :textDocument/codeAction
                                                       (append (qmlx--here) '(:context (:diagnostics [])))))))
        (qmlx-rewrite "with sum")
        (until (lambda () (string-match-p "return sum" (buffer-string))))
        (out "rewritten" :text (buffer-string))
        (qmlx-ask "Slow?")
        (until (lambda () (string-match-p "word word" (answers))))
        (qmlx-cancel)
        (until (lambda () (string-match-p "cancelled" qmlx-status)))
        (out "cancelled" :status qmlx-status)
        (set-buffer-modified-p nil)
        (eglot-shutdown server)
        (out "left")))
  (error (out "error" :message (format "%S" failed))))
(kill-emacs 0)
;;; emacs.el ends here
